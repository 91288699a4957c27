//go:build !race

package grpcapi_test

const raceEnabled = false
