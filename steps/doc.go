// Package steps is the contract of Go-native steps: a Factory declares a step's
// parameters and signature and makes it; each child package implements one family.
// A step runs as a model of the native backend, so it has a repository folder,
// statistics and a version like any other.
package steps
