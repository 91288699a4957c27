// Package config holds the settings of unqueryvet that golangci-lint fills.
package config

// UnqueryvetSettings are the settings that golangci-lint sets; nothing reads
// them here.
type UnqueryvetSettings struct {
	CheckSQLBuilders, CheckAliasedWildcard, CheckStringConcat, CheckFormatStrings, CheckStringBuilder,
	CheckSubqueries, N1DetectionEnabled, SQLInjectionDetectionEnabled, TxLeakDetectionEnabled bool
	Allow, AllowedPatterns, IgnoredFunctions []string
	CustomRules                              []CustomRule
	SQLBuilders                              SQLBuildersConfig
}

// CustomRule is a rule written by a user.
type CustomRule struct {
	ID, Pattern, When, Message, Severity, Action string
	Patterns                                     []string
}

// SQLBuildersConfig picks the builder libraries to look at.
type SQLBuildersConfig struct{ Squirrel, GORM, SQLx, Ent, PGX, Bun, SQLBoiler, Jet bool }

// DefaultSettings returns empty settings.
func DefaultSettings() UnqueryvetSettings { return UnqueryvetSettings{} }
