package telemetry

import (
	"testing"
	"time"
)

// TestMain sets the process's start to a day ago, so that the monotonic and the wall clock differ clearly.
func TestMain(m *testing.M) {
	start = start.Add(-24 * time.Hour)
	m.Run()
}
