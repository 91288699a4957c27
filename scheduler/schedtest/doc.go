// Package schedtest holds the contract suite that every scheduler passes (Run), and
// what tests of schedulers are made of: a Bench with checked memory, works whose
// completion can be waited for, and models that are functions.
package schedtest
