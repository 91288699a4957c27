// Package tune finds the batching, instance and thread settings of an ensemble's models that serve the most requests
// within a latency objective.
//
// It works in five phases:
//
//  1. Measure (measure.go): each model executes batches of the samples alone, with several numbers of threads, and in each
//     precision that it has a version in (versions.go). Fit
//     turns the times into a Cost: wall time against rows and elements, cores in use, and interference.
//  2. Calibrate (calibrate.go): a short run of the current configuration measures what a request costs outside its
//     models, and how much slower everything is under load.
//  3. Search (search.go): Simulate executes the ensemble's requests as discrete events over the batching policies of
//     package scheduler/dynamic and the shared cores, for many settings and rates.
//  4. Validate (validate.go): the best settings and the current ones serve the same requests, interleaved.
//  5. Report (report.go, pareto.go, change.go): predictions beside measurements, a picture, and the changes to config.pbtxt.
//
// The folder of models is never served itself: lab.Overlay makes a folder of links with other configurations.
package tune
