package cli

import (
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

const (
	// configsPerPage is how many hosts the server renders for one request.
	configsPerPage = 100
	// maxConfigs bounds the hosts of which differences are read: ten requests, and more than
	// a person compares. --host names others.
	maxConfigs = 1000
	// hostsNamed is how many hosts with the same difference are named.
	hostsNamed = 10
)

// showConfigs previews a draft, and prints what it changes in the configuration files of its
// targets, or of some of them.
func (a *client) showConfigs(cmd *cobra.Command, id string, hosts []string) error {
	agents, err := a.agentIDs(cmd.Context(), hosts)
	if err != nil {
		return err
	}
	preview, err := ask(cmd.Context(), a, adminapi.PreviewRollout, nil, id)
	if err != nil {
		return err
	}
	got, err := everyPageOf[adminapi.ConfigPreviewItem](cmd.Context(), a, adminapi.ListPreviewConfigs, configsPerPage, maxConfigs, url.Values{"agent": agents}, id, preview.Item.Hash)
	if err != nil {
		return err
	}
	return a.show(cmd.OutOrStdout(), got, func(w io.Writer) {
		printConfigs(w, got.Items)
		if got.Total == 0 {
			fmt.Fprintf(w, "no agent would be upgraded: `muster rollouts preview %s` says why\n", id)
		}
		if more := got.Total - len(got.Items); more > 0 {
			fmt.Fprintf(w, "… and %s more: name some with --host\n", counted(more, "host"))
		}
	})
}

// printConfigs prints each difference once, with the hosts that have it, in the order of their
// first.
func printConfigs(w io.Writer, items []adminapi.ConfigPreviewItem) {
	type group struct {
		hosts []string
		item  adminapi.ConfigPreviewItem
	}
	var groups []*group
	known := map[[2]string]*group{}
	for _, i := range items {
		key := [2]string{deref(i.Error), deref(i.Diff)}
		g := known[key]
		if g == nil {
			g = &group{item: i}
			known[key], groups = g, append(groups, g)
		}
		g.hosts = append(g.hosts, i.Hostname)
	}
	for _, g := range groups {
		hosts, one := hostList(g.hosts), len(g.hosts) == 1
		switch {
		case g.item.Error != nil:
			fmt.Fprintf(w, "%s cannot get the files: %s\n", hosts, *g.item.Error)
		case deref(g.item.Diff) == "" && one:
			fmt.Fprintf(w, "%s has the files already\n", hosts)
		case deref(g.item.Diff) == "":
			fmt.Fprintf(w, "%s have the files already\n", hosts)
		default:
			fmt.Fprintf(w, "%s:\n%s", hosts, *g.item.Diff)
		}
	}
}

// hostList names hosts, with their number if there are several.
func hostList(hosts []string) string {
	if len(hosts) == 1 {
		return hosts[0]
	}
	named := hosts[:min(len(hosts), hostsNamed)]
	more := ""
	if n := len(hosts) - len(named); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%d hosts (%s%s)", len(hosts), strings.Join(named, ", "), more)
}
