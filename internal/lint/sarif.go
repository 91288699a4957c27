package lint

import (
	"cmp"
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
		Tool       map[string]sarifDriver `json:"tool"` // by "driver"
		Results    []sarifResult          `json:"results"`
		ColumnKind string                 `json:"columnKind"` // the unit of columns: characters
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID      string      `json:"id"`
		Short   sarifObject `json:"shortDescription"`
		Help    sarifObject `json:"help,omitempty"`
		Default sarifObject `json:"defaultConfiguration"`
	}
	sarifObject map[string]string // with one key
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifObject     `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
		Logical  []sarifObject `json:"logicalLocations,omitempty"`
	}
	sarifPhysical struct {
		Artifact sarifObject  `json:"artifactLocation"`
		Region   *sarifRegion `json:"region,omitempty"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn"`
	}
)

// sarifLevels are SARIF's levels of the severities.
var sarifLevels = map[config.Severity]string{config.Fault: "error", config.Warning: "warning", config.Notice: "note"}

func newSARIF(list []config.Diagnostic, version string) sarifLog {
	run := sarifRun{Results: []sarifResult{}, ColumnKind: "unicodeCodePoints"}
	driver, index := sarifDriver{Name: "tutti", Version: version}, map[config.Code]int{}
	for i, r := range config.Rules() {
		index[r.Code] = i
		one := sarifRule{ID: string(r.Code), Short: sarifObject{"text": r.Doc}, Default: sarifObject{"level": sarifLevels[r.Severity]}}
		if r.Fix != "" {
			one.Help = sarifObject{"text": r.Fix}
		}
		driver.Rules = append(driver.Rules, one)
	}
	run.Tool = map[string]sarifDriver{"driver": driver}
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
	at := sarifLocation{Physical: sarifPhysical{Artifact: sarifObject{"uri": uri(d.File)}}}
	if d.Line > 0 {
		at.Physical.Region = &sarifRegion{d.Line, d.Column}
	}
	if d.Field != "" {
		at.Logical = []sarifObject{{"fullyQualifiedName": d.Model + "." + d.Field}}
	}
	return sarifResult{
		RuleID: string(d.Code), RuleIndex: index[d.Code], Level: sarifLevels[d.Severity],
		Message: sarifObject{"text": text}, Locations: []sarifLocation{at},
	}
}

// uri converts a path to a URI reference: a relative path stays relative to the checkout.
func uri(path string) string {
	path = cmp.Or(path, ".")
	u := url.URL{Path: filepath.ToSlash(path)}
	if filepath.IsAbs(path) {
		u.Scheme = "file"
	}
	return u.String()
}
