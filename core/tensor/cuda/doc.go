// Package cuda implements tensor.Accelerator on NVIDIA GPUs through the CUDA driver API.
//
// The driver's library, libcuda.so.1, is opened at run time: the same binary runs on machines with and without a GPU.
// A device uses its primary context, which it shares with the CUDA runtime that native libraries of the process
// bring along, so that pointers of this package are valid in their calls and the other way round.
//
//	driver, err := cuda.Open("")            // cuInit; fails where there is no driver
//	gpus, err := driver.Devices(cuda.Options{})
//	err = places.Add(gpus[0])               // no context yet: the first allocation makes it
//	...
//	err = driver.Close()
//
// # Memory
//
// Memory comes from one stream-ordered pool per device (cuMemAllocFromPoolAsync). Stream.Alloc is ordered with the
// stream's work and does not block. Device.Alloc returns memory that every stream may use at once. A release is
// ordered on the device behind the last uses of the memory: the host never waits for it. When the device has no
// memory left, the functions of OnPressure and the pool give unused memory back, and the allocation is tried once more.
//
// # Events
//
// A Stream counts its operations. An event is such a count, and costs a driver call only if something asks for it:
// a host that waits, another stream, or a release. Several events between two operations are one.
//
// Stream.Span measures by events with timing (cuEventElapsedTime), and places them on the host's clock by a reference event that is at
// most 100 ms old. Times have a resolution of about 0.5 us.
//
// Every error is a status that names the driver's call, the device, the driver's text, and what to do. After an
// error that makes the context unusable, for example an illegal address, the device is lost: every further call fails
// with the first error, see Device.Lost.
package cuda
