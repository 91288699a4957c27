// Package tutti is the composition root of the tutti server: it turns flags
// and the factories it is handed into a running server and stops it in order.
package tutti
