// Package logs writes the server's log in the formats that Triton's tools read, with
// settings that can change while it runs.
package logs
