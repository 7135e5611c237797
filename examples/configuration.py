"""A key-value store: configuration that programs watch, and a lock with a fencing token.

python examples/configuration.py [DOMAIN]

One replica in this process, so that it runs by itself. Run three for one that survives: `vivum kv serve --help`.
"""

import asyncio
import sys
import tempfile

from vivum import kv

ADDRESS = "127.0.0.1:7179"


async def follow(store: kv.KeyValueClient, began: asyncio.Event) -> None:
    after = (await store.status()).revision
    began.set()
    async for change in store.watch("/config/", prefix=True, after=after):
        print(f"saw {change.key} = {(change.value or b'').decode()}")
        return


async def main(domain: str, state: str) -> None:
    replica = kv.serve(1, {1: ADDRESS}, state, domain=domain)
    try:
        async with kv.connect([ADDRESS], domain=domain) as store, asyncio.TaskGroup() as tasks:
            revision = await store.put("/config/rate", b"100")
            found = await store.get("/config/rate")
            assert found is not None
            print(f"rate is {found.value.decode()}")

            began = asyncio.Event()
            tasks.create_task(follow(store, began))
            await began.wait()
            # Only if nobody changed it since it was read.
            await store.compare_and_set("/config/rate", b"200", revision=revision)

            async with store.lock("/jobs/nightly") as lock:
                print(f"worked with token {lock.token}")
    finally:
        replica.close()
    # What was answered is on the disk.
    replica = kv.serve(1, {1: ADDRESS}, state, domain=domain)
    try:
        async with kv.connect([ADDRESS], domain=domain) as store:
            found = await store.get("/config/rate")
            assert found is not None
            print(f"rate is {found.value.decode()} after all")
    finally:
        replica.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "configuration-example", folder))
