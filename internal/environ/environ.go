// Package environ chooses the environment variables that processes of models get.
package environ

import (
	"slices"
	"strings"
)

// secretWords end a part of the name of an environment variable with a secret. Parts are separated by underscores: TOKENIZERS_PARALLELISM
// has none.
var secretWords = []string{
	"TOKEN", "TOKENS", "SECRET", "SECRETS", "KEY", "KEYS", "PASSWORD", "PASSWD", "PASSPHRASE", "PASS", "CREDENTIAL", "CREDENTIALS", "AUTH",
}

// secretNames are environment variables with secrets that the words miss: options of the server, and connections with passwords.
var secretNames = []string{
	"TUTTI_HTTP_RESTRICTED_API", "TUTTI_GRPC_RESTRICTED_PROTOCOL", "TUTTI_CACHE_CONFIG", "AZURE_STORAGE_CONNECTION_STRING", "DATABASE_URL", "REDIS_URL",
}

// secret reports whether an environment variable may hold a secret.
func secret(name string) bool {
	name = strings.ToUpper(name)
	if slices.Contains(secretNames, name) {
		return true
	}
	for part := range strings.SplitSeq(name, "_") {
		if slices.ContainsFunc(secretWords, func(word string) bool { return strings.HasSuffix(part, word) }) {
			return true
		}
	}
	return false
}

// ONNXTelemetry is the variable that keeps ONNX Runtime from collecting events and sending them to its maker, if it is set before the
// process creates its first environment. From 1.29 on the official libraries do both by default, and write a database below the home
// folder; DisableTelemetryEvents of the C API is too late, because the environment exists by then.
const ONNXTelemetry = "ORT_DISABLE_TELEMETRY"

// WithoutTelemetry changes the list of environment variables so that ONNX Runtime sends nothing, unless the user has set its variable.
func WithoutTelemetry(env []string) []string {
	env = slices.DeleteFunc(env, func(v string) bool { return v == ONNXTelemetry+"=" })
	if slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, ONNXTelemetry+"=") }) {
		return env
	}
	return append(env, ONNXTelemetry+"=1")
}

// All passes every variable.
const All = "*"

// WithoutSecrets returns the environment variables of the list that processes of models get: all but secrets, and those secrets whose
// names are in pass.
func WithoutSecrets(env, pass []string) []string {
	kept := make([]string, 0, len(env))
	for _, v := range env {
		if !withheld(v, pass) {
			kept = append(kept, v)
		}
	}
	return kept
}

// Secrets returns the sorted names of the variables that WithoutSecrets leaves out.
func Secrets(env, pass []string) (names []string) {
	for _, v := range env {
		if withheld(v, pass) {
			name, _, _ := strings.Cut(v, "=")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// withheld reports whether a variable, NAME=VALUE, is a secret that is not passed.
func withheld(v string, pass []string) bool {
	name, _, _ := strings.Cut(v, "=")
	return secret(name) && !slices.Contains(pass, name) && !slices.Contains(pass, All)
}
