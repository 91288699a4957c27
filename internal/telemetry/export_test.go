package telemetry

import "slices"

// When describes when the named family is exported, for the reference page.
func When(name string) string {
	if i := slices.IndexFunc(families, func(f family) bool { return f.name == name }); i >= 0 {
		return families[i].when.text
	}
	return ""
}
