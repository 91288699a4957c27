package telemetry

import (
	"testing"
	"time"
)

// TestMain has the process started a day ago, so that its own clock and the calendar's differ by more than a rounding.
func TestMain(m *testing.M) {
	start = start.Add(-24 * time.Hour)
	m.Run()
}
