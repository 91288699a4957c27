// Package logs writes the server's log in the formats that Triton's tools read, with
// settings that can change while it runs.
//
//   - log.go: Log, its settings and where lines go
//   - handler.go: the slog.Handler over a Log
//   - format.go: a whole line in each format
//   - encode.go: attributes, as key=value and as JSON
package logs
