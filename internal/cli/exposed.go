package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"slices"

	"github.com/tutti-server/tutti"
	"github.com/tutti-server/tutti/internal/exposure"
	"github.com/tutti-server/tutti/internal/lint"
	"github.com/tutti-server/tutti/internal/options"
)

// beforeServe splits arguments at --, after which those of `tutti serve` follow. given reports whether it is there.
func beforeServe(args []string) (own, serve []string, given bool) {
	i := slices.Index(args, "--")
	if i < 0 {
		return args, nil, false
	}
	return args[:i], args[i+1:], true
}

// openTo returns what of a server with these arguments, and the environment, is open to whom.
func openTo(args []string) ([]exposure.Entry, error) {
	o, err := options.Parse(args, os.Environ())
	if errors.Is(err, flag.ErrHelp) {
		return nil, usagef("behind -- are the options of tutti serve, which tutti serve --help lists")
	}
	if err != nil {
		return nil, &usageError{err}
	}
	return exposure.Of(o)
}

// writeReport writes a report in a format, with what is open to whom unless access is nil. SARIF has the report only.
func writeReport(w io.Writer, r *lint.Report, access []exposure.Entry, format string) error {
	if access == nil || format == lint.SARIF {
		return r.Write(w, format, tutti.Version)
	}
	if format == lint.JSON {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(struct {
			*lint.Report
			Access []exposure.Entry `json:"access"`
		}{r, access}); err != nil {
			return err
		}
		_, err := b.WriteTo(w)
		return err
	}
	if err := r.Write(w, format, tutti.Version); err != nil {
		return err
	}
	exposure.Write(w, access)
	return nil
}
