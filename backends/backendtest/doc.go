// Package backendtest is the contract of package backends as a test suite: every backend calls Run from its own tests.
//
// It checks lifecycles (closing early, twice, and in the order of the contract), ownership of memory (with an allocator that reports
// leaks), cancellation, bad input, concurrent instances, and outputs that outlive their model. For example:
//
//	backendtest.Run(t, identity.NewFactory(), backends.Options{}, backendtest.Fixture{Settings: s, In: in, Want: want})
package backendtest
