// Package backendtest is the contract of package backends as a test suite: every backend calls Run from its own tests.
//
// It checks lifecycles (closing early, twice, and in the contract's order), who holds which memory (with an allocator
// that reports what is left), cancellation, bad input, concurrent instances, and that outputs outlive what made them.
package backendtest
