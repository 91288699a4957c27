package plot_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/plot"
)

// TestWrite checks that a plot is a file of SVG with every line, also for names with markup and without any point.
func TestWrite(t *testing.T) {
	t.Parallel()
	for _, list := range [][]plot.Series{nil, {{Name: "a<b", At: [][2]float64{{0.5, 1}, {1, 0.5}}}, {Name: "bound", Dashed: true, At: [][2]float64{{0.5, 1}, {1, 1}}}}} {
		p := plot.Plot{Title: "goodput & load", X: "load", Y: "in time", XLabel: plot.Number, YLabel: plot.Number, Series: list}
		var b strings.Builder
		if err := p.Write(&b); err != nil {
			t.Fatal(err)
		}
		lines := 0
		for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%v: %s", err, b.String())
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "polyline" {
				lines++
			}
		}
		if lines != len(list) || strings.Contains(string(p.SVG()), "xmlns") {
			t.Errorf("%d lines, expected %d: %s", lines, len(list), b.String())
		}
	}
}
