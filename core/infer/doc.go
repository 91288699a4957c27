// Package infer holds what a request and its answer are, and the small interfaces
// through which the front ends reach whatever serves them.
package infer
