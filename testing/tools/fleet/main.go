// Command fleet runs a server with a simulated fleet until Ctrl-C; see package simfleet.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/muster-fleet/muster/testing/kit/simfleet"
)

func main() {
	o := simfleet.Options{Out: os.Stdout}
	flag.IntVar(&o.Hosts, "hosts", 300, "how many hosts there are")
	flag.IntVar(&o.Live, "live", 60, "how many of them are agents that carry out orders")
	flag.StringVar(&o.Dir, "dir", "", "the folder of everything, empty or absent; by default a temporary one")
	flag.Uint64Var(&o.Seed, "seed", 1, "decides everything that is random")
	flag.Float64Var(&o.Pace, "pace", 1, "multiplies the durations of upgrades")
	flag.BoolVar(&o.Unattended, "unattended", false, "nobody gives an order after the start")
	port := flag.Int("port", 0, "the port of the admin API; by default a free one")
	flag.Parse()
	o.Listen = fmt.Sprintf("127.0.0.1:%d", *port)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := simfleet.Run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
