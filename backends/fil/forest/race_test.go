//go:build race

package forest_test

const raceEnabled = true
