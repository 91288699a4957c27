// Package trace is what is done with finished traces: how they are kept as bytes and how
// they are shown.
//
//   - codec.go: a Record as bytes, and back
//   - view.go: a Record as the dashboard sees it
//
// Its child keeps them: ring, a store of fixed size.
package trace
