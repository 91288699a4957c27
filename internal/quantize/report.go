package quantize

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/internal/precision"
	"github.com/tutti-server/tutti/internal/table"
)

// Report writes the result for people.
func (r *Result) Report(w io.Writer) error {
	rec := r.Record
	var b strings.Builder
	fmt.Fprintf(&b, "%s version %d in %s against version %d: %s, %s instead of %s\n", r.Model, r.Version, rec.Precision, rec.Reference.Version,
		table.Count(rec.Requests, "request"), megabytes(r.Bytes[1]), megabytes(r.Bytes[0]))
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	rows := [][]string{{"OUTPUT", "TYPE", "ROWS", "WORST COSINE", "MEAN COSINE", "LARGEST DIFFERENCE", "TOP-1 AGREEMENT"}}
	for i := range rec.Outputs {
		o := &rec.Outputs[i]
		rows = append(rows, []string{
			o.Name, o.Datatype, strconv.FormatInt(o.Rows, 10), figure(o.Cosine, 6), figure(o.MeanCosine, 6), figure(o.Difference, 4), share(o.Top1),
		})
	}
	table.Right(w, "", rows)
	b.Reset()
	for i := range rec.Outputs {
		if o := &rec.Outputs[i]; o.NotFinite > 0 {
			fmt.Fprintf(&b, "output %s: %d elements are NaN or infinite where the reference has numbers\n", o.Name, o.NotFinite)
		}
	}
	if r.Smoothed > 0 {
		fmt.Fprintf(&b, "%d of %s read smoothed activations\n", r.Smoothed, table.Count(r.Products, "matrix product"))
	}
	if r.Kept > 0 {
		fmt.Fprintf(&b, "%d of %s stay in fp32: those with the largest error\n", r.Kept, table.Count(r.Products, "matrix product"))
	}
	switch {
	case r.Bound == "":
		b.WriteString("no fidelity is demanded: set the parameter '" + precision.FidelityKey + "', for example by --fidelity cosine=0.99\n")
	case r.Missed != "":
		fmt.Fprintf(&b, "it misses the fidelity '%s': %s\n", r.Bound, r.Missed)
	default:
		fmt.Fprintf(&b, "it has the fidelity '%s'\n", r.Bound)
	}
	if r.Diff != "" {
		fmt.Fprintf(&b, "\n%s", r.Diff)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func figure(v *float64, digits int) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'g', digits, 64)
}

func share(v *float64) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(100**v, 'f', 1, 64) + " %"
}

func megabytes(n int64) string { return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + " MB" }
