// Package overview computes the dashboard's figures: the rates of the last minute and the
// bytes between the steps of an ensemble. Window implements inspect.Overview.
//
//   - overview.go: Window, which samples the counters of all models once a second
//   - flows.go: the bytes of an ensemble's edges in the last seconds
package overview
