//go:build !race

package fil

const raceEnabled = false
