// Package options is everything a server can be told: the table of its flags, and the command line, the environment and
// the file they come from. The commands of the root package turn Options into what the layers are made from.
//
//   - options.go: Options, with the defaults
//   - flag.go: Flag, a row of the table; flags_*.go: the rows by group; setter.go: what takes their values
//   - source.go: Parse, and the sources by precedence; file.go: the YAML file among them
//   - finish.go: what flags say together; backendconfig.go: the settings of backends
//   - help.go: the table as a text for users
package options
