package lint

import (
	"net/url"
	"path/filepath"

	"github.com/tutti-server/tutti/core/config"
)

// The parts of SARIF 2.1.0, the OASIS format of code scanners, that a report needs.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool     `json:"tool"`
		Results []sarifResult `json:"results"`
		// ColumnKind is the unit of columns: characters.
		ColumnKind string `json:"columnKind"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID      string       `json:"id"`
		Short   sarifText    `json:"shortDescription"`
		Help    *sarifText   `json:"help,omitempty"`
		Default sarifDefault `json:"defaultConfiguration"`
	}
	sarifDefault struct {
		Level string `json:"level"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		Physical sarifPhysical  `json:"physicalLocation"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn"`
	}
	sarifLogical struct {
		Name string `json:"fullyQualifiedName"`
	}
)

// sarifLevels are SARIF's levels of the severities.
var sarifLevels = map[config.Severity]string{config.Fault: "error", config.Warning: "warning", config.Notice: "note"}

// newSARIF returns a log of one run of the program in this version.
func newSARIF(list []config.Diagnostic, version string) sarifLog {
	run := sarifRun{
		Tool: sarifTool{sarifDriver{Name: "tutti", Version: version}}, Results: []sarifResult{}, ColumnKind: "unicodeCodePoints",
	}
	index := map[config.Code]int{}
	for i, r := range config.Rules() {
		index[r.Code] = i
		one := sarifRule{ID: string(r.Code), Short: sarifText{r.Doc}, Default: sarifDefault{sarifLevels[r.Severity]}}
		if r.Fix != "" {
			one.Help = &sarifText{r.Fix}
		}
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, one)
	}
	for i := range list {
		run.Results = append(run.Results, sarifOf(&list[i], index))
	}
	return sarifLog{
		Schema: "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run},
	}
}

func sarifOf(d *config.Diagnostic, index map[config.Code]int) sarifResult {
	text := d.Reason
	if d.Fix != "" {
		text += "\nFix: " + d.Fix
	}
	at := sarifLocation{Physical: sarifPhysical{Artifact: sarifArtifact{URI: uri(d.File)}}}
	if d.Line > 0 {
		at.Physical.Region = &sarifRegion{d.Line, d.Column}
	}
	if d.Field != "" {
		at.Logical = []sarifLogical{{d.Model + "." + d.Field}}
	}
	return sarifResult{
		RuleID: string(d.Code), RuleIndex: index[d.Code], Level: sarifLevels[d.Severity],
		Message: sarifText{text}, Locations: []sarifLocation{at},
	}
}

// uri converts a path to a URI reference: a relative path stays relative to the checkout.
func uri(path string) string {
	if path == "" {
		path = "."
	}
	u := url.URL{Path: filepath.ToSlash(path)}
	if filepath.IsAbs(path) {
		u.Scheme = "file"
	}
	return u.String()
}
