// Package modelconfig holds the messages of config.pbtxt, generated from
// model_config.proto. The generated files are committed; make generate writes
// them.
package modelconfig
