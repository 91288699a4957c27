package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gdamore/tcell/v3/vt"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/internal/monitor"
)

// terminalText returns the text on a terminal.
func terminalText(term vt.MockTerm) string {
	var b strings.Builder
	size := term.Backend().GetSize()
	for y := range size.Y {
		for x := range size.X {
			b.WriteString(term.GetCell(vt.Coord{X: x, Y: y}).C)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestTopKeys watches a server on a terminal: figures appear, keys filter, order and end, the size changes, and a lost server
// is shown.
func TestTopKeys(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, name := range []string{"first", "second"} {
		if err := os.MkdirAll(filepath.Join(root, name, "1"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(copyConfig), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	serving, stop := context.WithCancel(context.Background())
	defer stop()
	a, _ := serveUntil(serving, t, components(), "--model-repository="+root)
	c := client.NewHTTP("http://"+a.http, nil)
	defer c.Close()
	term := vt.NewMockTerm(vt.MockOptSize{X: 100, Y: 10})
	ended := make(chan error, 1)
	go func() {
		ended <- monitor.Run(t.Context(), &monitor.Source{Client: c}, &monitor.Options{Interval: 20 * time.Millisecond, View: monitor.View{Column: "REQ/S"}, Terminal: term})
	}()
	shows := func(what string, want func(text string) bool) {
		t.Helper()
		repeated(t, what, func(context.Context) error {
			if text := terminalText(term); !want(text) {
				return errors.New("the terminal shows:\n" + text)
			}
			return nil
		})
	}
	shows("both models", func(text string) bool {
		return strings.Contains(text, "first") && strings.Contains(text, "second") && strings.Contains(text, "REQ/Sv") && strings.Contains(text, "q quit")
	})
	// Requests follow each other: on an idle machine, one between two looks falls into a sample that no look sees.
	var requests sync.WaitGroup
	end := make(chan struct{})
	requests.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
			}
			if _, err := c.Infer(t.Context(), &client.Request{Model: "second", Inputs: []client.Tensor{client.Of("INPUT0", []int64{1}, int32(1))}}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	stopRequests := sync.OnceFunc(func() { close(end); requests.Wait() })
	defer stopRequests()
	shows("requests of the second model", func(text string) bool {
		at := strings.Index(text, "second")
		return at >= 0 && at < strings.Index(text, "first") && !strings.Contains(text, "  0 req/s")
	})
	stopRequests()
	term.KeyTap(vt.KeySlash)
	term.KeyTap(vt.KeyF)
	shows("the filter", func(text string) bool {
		return strings.Contains(text, "filter: f_") && strings.Contains(text, "first") && !strings.Contains(text, "second")
	})
	term.KeyTap(vt.KeyEsc)
	term.KeyTap(vt.KeyRight)
	shows("another order", func(text string) bool { return strings.Contains(text, "ERR/Sv") && strings.Contains(text, "second") })
	term.SetSize(vt.Coord{X: 12, Y: 2})
	shows("a tiny terminal", func(text string) bool { return strings.HasPrefix(text, "first") && !strings.Contains(text, "MODEL") })
	term.SetSize(vt.Coord{X: 80, Y: 8})
	stop()
	shows("the lost server", func(text string) bool { return strings.Contains(text, "no new figures for") })
	term.KeyTap(vt.KeyQ)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
