// Package shm keeps the shared-memory regions that clients register. A request can name a part of a region instead
// of carrying the bytes of a tensor. For example, a client registers "input0" with the key "/input_data" once, and
// then sends only the region's name, an offset and a size.
//
// A region is a POSIX shared-memory object that the client created and may change, shorten or delete at any time.
// The server therefore never maps it: touching a page that the client has truncated would kill the process. Every
// access is a pread or pwrite on the region's descriptor, and fails with an error when the memory is gone.
//
//   - registry.go: registering, listing and unregistering regions
//   - window.go: the part of a region that a request uses
//   - file.go: the POSIX objects behind system regions
package shm
