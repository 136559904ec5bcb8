// Package kql is Kibana's query language: its grammar, what a query means for the
// fields of a schema, and whether a document matches. It is pure. Whoever takes a
// query from people calls Parse and Compile; stores carry the Filter out in their
// own language, and Match does so in memory. Suggest is for those who are still
// writing.
package kql
