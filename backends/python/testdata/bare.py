"""The worker of a benchmark: the least that a process must do to add one to an array in shared memory, without any protocol.

Arguments: the number of floats, and whether numpy writes its result to shared memory ("out") or to memory of its own, from where
it is copied ("new"). Descriptor 3 is a socket, descriptor 4 the memory. Any packet is a request, and is sent back as the response.
"""

import mmap
import socket
import sys

import numpy as np


def main():
    n, out = int(sys.argv[1]), sys.argv[2] == "out"
    sock = socket.socket(fileno=3)
    numbers = np.ndarray((n,), np.float32, mmap.mmap(4, 4 * n))
    packet, one = bytearray(16), np.float32(1)
    while sock.recv_into(packet):
        if out:
            np.add(numbers, one, out=numbers)
        else:
            numbers[:] = numbers + one
        sock.send(packet)


main()
