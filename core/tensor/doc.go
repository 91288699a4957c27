// Package tensor holds the values that travel between steps: element types,
// shapes, places, reference-counted buffers and the pools they come from.
//
// Three words say who must release a tensor, and every signature that passes one
// uses one of them:
//
//   - moves: the callee owns the reference afterwards and must release it;
//   - borrows: the callee may look until the call (or the batch) is over;
//   - shares: the callee takes a reference of its own with Retain.
//
// A buffer is immutable once a second holder has it. BYTES tensors keep the wire's
// layout, a 4-byte little-endian length before each element, from socket to socket.
package tensor
