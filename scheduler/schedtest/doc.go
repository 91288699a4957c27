// Package schedtest holds the contract suite that every scheduler must pass (Run), and helpers for tests of
// schedulers: a Bench with checked memory, jobs that a test can wait for, and models that are functions.
package schedtest
