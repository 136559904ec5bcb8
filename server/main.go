// Command muster is the fleet check-in server and its operator's command line:
// `muster server` serves agents, the admin API and the web UI; every other
// command is a client of that API.
package main

import (
	"os"
	_ "time/tzdata" // maintenance windows have time zones, and not every host has the database

	"github.com/muster-fleet/muster/server/cli"
)

// version is set when a release is built.
var version = "0.1.0"

func main() { os.Exit(cli.Main(version)) }
