package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/watcher/probe"
)

func componentsSubcommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "components",
		Short: "Show what this host runs by its policy: versions, health, upgrades, output",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(componentsListSubcommand(), componentsStatusSubcommand(), componentsLogsSubcommand(), componentsHistorySubcommand(), componentsReleaseSubcommand())
	return c
}

// hostFlags are the flags of subcommands that ask the agent.
type hostFlags struct{ top, output string }

func (f *hostFlags) add(c *cobra.Command) {
	topFlag(c, &f.top)
	c.Flags().StringVarP(&f.output, "output", "o", "human", "human or json")
}

func (f *hostFlags) client() (probe.Client, string, error) {
	if f.output != "human" && f.output != "json" {
		return probe.Client{}, "", fmt.Errorf("-o is %q, want human or json", f.output)
	}
	return agentIn(f.top)
}

func (f *hostFlags) print(w io.Writer, v any, human func(*tabwriter.Writer)) error {
	if f.output == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	human(table)
	return table.Flush()
}

func (f *hostFlags) workloads(c *cobra.Command) ([]probe.Workload, error) {
	client, top, err := f.client()
	if err != nil {
		return nil, err
	}
	h, err := client.Health(c.Context())
	if h.Workloads == nil {
		h.Workloads = []probe.Workload{}
	}
	return h.Workloads, explainNotRunning(err, top)
}

func componentsListSubcommand() *cobra.Command {
	var f hostFlags
	c := &cobra.Command{
		Use:   "list",
		Short: "List the components of this host's policy",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := f.workloads(c)
			if err != nil {
				return err
			}
			if len(list) == 0 && f.output == "human" {
				_, err := fmt.Fprintln(c.OutOrStdout(), "The policy of this host has no components.")
				return err
			}
			return f.print(c.OutOrStdout(), list, func(w *tabwriter.Writer) {
				fmt.Fprintln(w, "NAME\tVERSION\tSTATE\tMANAGED BY\tUPGRADE\tMESSAGE")
				for _, l := range list {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", l.Name, orDash(l.Version), l.State, l.ManagedBy, orDash(workloadUpgrade(l.Upgrade)), l.Message)
				}
			})
		},
	}
	f.add(c)
	return c
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// workloadUpgrade says what an upgrade does, such as "to 1.2.0, watching (verifying)".
func workloadUpgrade(u *probe.Upgrade) string {
	if u == nil {
		return ""
	}
	s := "to " + u.TargetVersion + ", " + strings.ToLower(strings.TrimPrefix(u.State, "UPG_"))
	if u.Phase != "" {
		s += " (" + strings.ToLower(u.Phase) + ")"
	}
	return s
}

func componentsStatusSubcommand() *cobra.Command {
	var f hostFlags
	c := &cobra.Command{
		Use:   "status NAME",
		Short: "Show one component; exits 0 only if it is healthy",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			list, err := f.workloads(c)
			if err != nil {
				return err
			}
			l, err := workload(list, args[0])
			if err != nil {
				return err
			}
			if err := f.print(c.OutOrStdout(), l, func(w *tabwriter.Writer) { printWorkload(w, l) }); err != nil {
				return err
			}
			if l.State != probe.Healthy {
				return exitCode(1)
			}
			return nil
		},
	}
	f.add(c)
	return c
}

// workload returns the component of that name.
func workload(list []probe.Workload, name string) (probe.Workload, error) {
	names := []string{}
	for _, l := range list {
		if l.Name == name {
			return l, nil
		}
		names = append(names, l.Name)
	}
	return probe.Workload{}, fmt.Errorf("there is no component %s on this host; its policy has: %s", name, orDash(strings.Join(names, ", ")))
}

func printWorkload(w io.Writer, l probe.Workload) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, value)
		}
	}
	line("name", l.Name)
	line("version", orDash(l.Version))
	line("state", strings.TrimSpace(string(l.State)+"  "+l.Message))
	line("runtime", l.Runtime+", restarted by "+l.ManagedBy+" when it ends")
	line("last healthy version", l.LastHealthyVersion)
	line("kept for a rollback", strings.Join(l.Rollbacks, ", "))
	if l.Since != nil {
		line("running since", l.Since.Local().Format(time.DateTime))
	}
	if l.Restarts > 0 {
		line("restarts", fmt.Sprint(l.Restarts))
	}
	if l.Upgrade != nil {
		line("upgrade", workloadUpgrade(l.Upgrade)+upgradeProgress(*l.Upgrade))
	}
	line("folder", l.Folder)
}

func componentsLogsSubcommand() *cobra.Command {
	var f hostFlags
	lines := 100
	c := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print the last lines of a component's output",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, top, err := f.client()
			if err != nil {
				return err
			}
			if lines < 1 || lines > probe.MaxLogLines {
				return fmt.Errorf("--lines is %d, want 1 to %d", lines, probe.MaxLogLines)
			}
			out, err := client.Logs(c.Context(), args[0], lines)
			if err != nil {
				return explainNotRunning(err, top)
			}
			return f.print(c.OutOrStdout(), out, func(w *tabwriter.Writer) {
				for _, l := range out {
					fmt.Fprintln(w, l)
				}
			})
		},
	}
	f.add(c)
	c.Flags().IntVarP(&lines, "lines", "n", lines, "how many lines")
	return c
}

func componentsHistorySubcommand() *cobra.Command {
	var f hostFlags
	c := &cobra.Command{
		Use:   "history NAME",
		Short: "List the last upgrades of a component, oldest first",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, top, err := f.client()
			if err != nil {
				return err
			}
			events, err := client.History(c.Context(), args[0])
			if err != nil {
				return explainNotRunning(err, top)
			}
			return f.print(c.OutOrStdout(), events, func(w *tabwriter.Writer) {
				fmt.Fprintln(w, "TIME\tFROM\tTO\tRESULT")
				for _, e := range events {
					result := "done"
					if e.Error != "" {
						result = e.Error
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", e.At.Local().Format(time.DateTime), orDash(e.From), e.To, result)
				}
			})
		},
	}
	f.add(c)
	return c
}

func componentsReleaseSubcommand() *cobra.Command {
	var (
		top           string
		undo, forward bool
	)
	c := &cobra.Command{
		Use:   "release NAME (--undo | --forward)",
		Short: "End a component's upgrade in lockstep, or start a held one, whose server is lost for good",
		Long: `End a component's upgrade in lockstep, or start a held one, whose server is lost for good.

A component that is upgraded in lockstep waits, drained or stopped, until its server lets all
hosts begin the next phase. Without the server nobody knows how far the others are, and
components of different versions may then run at the same time. So look at the other hosts
first, with "muster-agent components status NAME", and end all upgrades the same way. A server
that comes back continues its rollout, and needs no release.

A component is held, and not started, while its server has not said that its version is the one in
force. Released with --forward, it runs until the server's policy puts another version in force.

  --undo     the version before runs again; refused once this host may have begun to switch
  --forward  the upgrade goes on to its end, or the held component is started

The command asks for the component's name before it does anything.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			client, top, err := agentIn(top)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "Components of different versions may run at the same time afterwards. Type the component's name to go on: ")
			line, err := bufio.NewReader(c.InOrStdin()).ReadString('\n')
			if strings.TrimSpace(line) != args[0] {
				return errors.Join(fmt.Errorf("%q is not the component's name, so nothing was done", strings.TrimSpace(line)), ignoreEnd(err))
			}
			if err := client.Release(c.Context(), probe.ReleaseRequest{Component: args[0], Undo: undo}); err != nil {
				return explainNotRunning(err, top)
			}
			what := "Its upgrade goes on to its end, or it is held no longer"
			if undo {
				what = "Its upgrade is being undone"
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s is released. %s. See `muster-agent components status %s`.\n", args[0], what, args[0])
			return err
		},
	}
	topFlag(c, &top)
	c.Flags().BoolVar(&undo, "undo", false, "undo the upgrade")
	c.Flags().BoolVar(&forward, "forward", false, "let the upgrade go on to its end, or start the held component")
	c.MarkFlagsMutuallyExclusive("undo", "forward")
	c.MarkFlagsOneRequired("undo", "forward")
	return c
}

// ignoreEnd returns an error of reading, unless it is only the end of the input.
func ignoreEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
