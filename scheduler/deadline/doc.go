// Package deadline predicts when requests will be done, and decides which of them can still make their deadlines.
//
// It has no queue and no clock: the queues of package queue use it, and so does the simulator.
//
//   - Latency learns how long batches of a model take.
//   - Route predicts when a request ends that is at a step of a graph: it reserves the request's way through the steps that follow,
//     behind what is queued there (after the reservations of PPipe, arXiv 2507.18748).
//   - Margins says which requests a batch still completes in time, and which it does with room to spare (after the two-sided early drop
//     of PARD, arXiv 2602.08747).
//   - Pick chooses between the queues that share a device (after the deferred batches of Symphony, arXiv 2308.07470).
package deadline
