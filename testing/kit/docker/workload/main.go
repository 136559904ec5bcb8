// Command workload is the program in the containers of tests: `workload VERSION [broken]`
// is what package runtimetest expects of a release, and `workload probe FILE` is a health
// check that fails until the file exists.
package main

import (
	"fmt"
	"os"
	"slices"

	"github.com/muster-fleet/muster/agent/runtime/runtimetest"
)

func main() {
	args := os.Args[1:]
	switch {
	case len(args) == 0:
		fmt.Fprintln(os.Stderr, "workload: want a version, or probe and a file")
		os.Exit(2)
	case args[0] == "probe" && len(args) == 2:
		if _, err := os.Stat(args[1]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	default:
		os.Exit(runtimetest.Program(args[0], slices.Contains(args[1:], "broken")))
	}
}
