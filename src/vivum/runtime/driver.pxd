# Compiled from `driver.py`: this file declares the attributes and the methods that are called from C.
# docs/design/compiled.md says how.

from vivum.runtime.polling cimport Polling


cdef class Driver:
    cdef public object _backlog, _hand_over, _has_input, _left_ns, _lingering, _loop, _may_send_now, _node, _now_ns
    cdef public object _on_delivery, _on_event, _on_failed, _on_persist, _on_settled, _on_view, _pollers, _port
    cdef public object _sent_bytes
    cdef public object _settle_at_ns, _timer, _timer_ns, dropped, state
    cdef public Polling _polling
    cdef public Py_ssize_t turns

    cpdef object submit(self, object command)
    cpdef object send(self, object command)
    cpdef object collect(self, object hand_over)
    cpdef object end_run(self)
    cpdef object pump(self)
    cpdef object _become_idle(self)
    cpdef object _become_settling(self)
    cpdef object _become_lingering(self)
    cpdef object _become_pumping(self)
    cpdef object _become_again(self, object before)
    cpdef object _answer(self, object effects)
    cpdef object _handle(self, object arrived)
    cpdef object _drain(self)
    cpdef object _set_timer(self, object delay_s_min=*)
    cpdef object _pump(self)
    cpdef object _is_closed(self)
    cpdef object _carry_out(self, object effects)
    cpdef object _send(self, object datagrams)
    cpdef object _offer(self, object datagrams)
    cpdef object _wait(self)
