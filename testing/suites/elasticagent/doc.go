// Package elasticagent imitates an Elastic Agent towards a server: its requests are those that
// 8.15 and 9.x were seen to send. It runs no program and changes no host; a test moves it
// through the phases of an upgrade.
package elasticagent
