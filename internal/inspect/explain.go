package inspect

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Explain writes the parts of a request's duration and marks the largest.
func Explain(w io.Writer, v *TraceView) error {
	head := fmt.Sprintf("trace %s: %s version %d, %s, %s", v.ID, v.Model, v.Version, v.Status, span(v.DurationNs))
	if v.Request != "" {
		head += fmt.Sprintf(", request %q", v.Request)
	}
	if _, err := fmt.Fprintln(w, head); err != nil {
		return err
	}
	if v.Error != "" {
		if _, err := fmt.Fprintf(w, "  failed: %s\n", v.Error); err != nil {
			return err
		}
	}
	for _, p := range v.Split {
		share := 0.0
		if v.DurationNs > 0 {
			share = float64(p.Ns) / float64(v.DurationNs)
		}
		if _, err := fmt.Fprintf(w, "%12s %5.1f%% %-10s %-9s %s\n", span(p.Ns), 100*share, strings.Repeat("#", int(10*share+0.5)), p.Kind, p.Text); err != nil {
			return err
		}
	}
	return nil
}

// span formats nanoseconds with about three digits.
func span(ns int64) string {
	d := time.Duration(ns)
	switch {
	case d >= time.Second:
		return d.Round(time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(time.Microsecond).String()
	default:
		return d.Round(10 * time.Nanosecond).String()
	}
}
