// Package simdev is a device in software, for tests and for trying out graphs that
// keep their tensors on a device. It behaves as an accelerator does:
//
//   - Its memory has addresses of its own, which fault when the host touches them.
//   - Streams execute their work later, each on a goroutine; a stream's owner closes it.
//   - Allocating and freeing are ordered with the streams; freed memory is poisoned.
//   - Copies take time, in real time or only counted, and are counted by direction.
//
// Beyond what hardware does it detects broken rules: memory that is read before
// anything was written to it, used after it was freed, freed before its last use, or
// used by two streams without an event between. The work is refused with an error that
// names both sides. It knows the order of works from vector clocks, one counter per
// stream (Mattern 1988, as race detectors use them), not from what happened to run
// first, so that a test's verdict does not depend on speed. What the host waited for
// counts as ordered before everything that the host puts into streams later, whichever
// goroutine waited: it may miss a broken rule and never makes one up.
//
// A Machine holds several devices, which copy to each other.
package simdev
