"""Without asyncio: the same API from ordinary threads.

python examples/threads.py [DOMAIN]
"""

import sys
import threading

import vivum.sync


class Task(vivum.Message):
    number: int
    text: str


def work(domain: str | None, ready: threading.Event) -> None:
    with vivum.sync.connect(domain) as node:
        tasks = node.enter("/work/tasks", Task)
        results = node.enter("/work/results", Task)
        ready.set()
        for event in tasks:
            if not event.value.text:
                return
            results.send(Task(event.value.number, event.value.text.upper()))
            results.flush()


def main(domain: str | None) -> None:
    with vivum.sync.connect(domain) as node:
        tasks = node.enter("/work/tasks", Task, own=False)
        results = node.enter("/work/results", Task)
        ready = threading.Event()
        worker = threading.Thread(target=work, args=(domain, ready))
        worker.start()
        ready.wait()
        results.wait_for_members(2)
        for number, text in enumerate(["regions", "tokens", "views"]):
            tasks.send(Task(number, text))
        for _ in range(3):
            answer = results.receive(timeout_s=10)
            assert answer is not None
            print(answer.value.number, answer.value.text)
        tasks.send(Task(-1, ""))
        tasks.flush()
        worker.join()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
