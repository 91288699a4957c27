// Package options defines every option of the server: the table of flags, and how their values are read from the
// command line, the environment and a YAML file. The root package builds a server from the resulting Options.
//
// - options.go: Options and its defaults
// - flag.go: Flag, a row of the table; flags_*.go: the rows by group; setter.go: the functions that check and store values
// - source.go: Parse and the precedence of the sources; file.go: the YAML file
// - finish.go: checks across flags; backendconfig.go: the settings of backends
// - help.go: the text of --help
//
// For example, Parse([]string{"--http-port=80"}, []string{"TUTTI_GRPC_PORT=81"}) sets both ports.
package options
