// Package unqueryvet takes the place of the linter of that name, which checks
// SQL texts and is not enabled here, because its module carries 19 MB of
// editor plugins. Enabling the linter fails.
package unqueryvet

import (
	"errors"

	"github.com/MirrexOne/unqueryvet/pkg/config"
	"golang.org/x/tools/go/analysis"
)

// NewWithConfig returns an analyzer that refuses to run.
func NewWithConfig(*config.UnqueryvetSettings) *analysis.Analyzer {
	return &analysis.Analyzer{
		Name: "unqueryvet",
		Doc:  "unqueryvet is left out of this build of golangci-lint",
		Run: func(*analysis.Pass) (any, error) {
			return nil, errors.New("unsupported linter unqueryvet: tools/go.mod replaces it")
		},
	}
}
