// Package kql implements Kibana's query language: its grammar, what a query means for
// the fields of a schema, and whether a document matches. It does no I/O. Compile
// parses a query into a Filter; stores evaluate the Filter in their own language, and
// Match does so in memory. Suggest completes a query while it is being typed.
package kql
