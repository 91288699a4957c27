// Package simdev simulates accelerators in software, for tests and for graphs that keep tensors on a device. It
// behaves as an accelerator does:
//
//   - Device memory has its own addresses. A host access to one faults.
//   - Streams execute operations asynchronously, each on a goroutine. The owner of a stream must close it.
//   - Allocations and frees are ordered with the streams. Freed memory is poisoned.
//   - Copies take time, real or simulated, and are counted by direction.
//
// Beyond hardware, it detects violated rules: a read before the first write, a use after free, a free before the
// last use, and unordered use by two streams. The operation fails with an error that names both accesses. For
// example: "the fill by stream 'a' is not ordered after the copy from device:0 to host by stream 'b'; expected an
// event between them".
//
// The order comes from vector clocks, one counter per stream (Mattern 1988; race detectors use them), not from the
// actual interleaving, so that the verdict of a test does not depend on speed. Everything that the host has waited
// for is ordered before everything that the host enqueues later, on any goroutine. The check may therefore miss a
// violation, but it never reports a false one.
//
// A Machine holds several devices, which copy to each other.
package simdev
