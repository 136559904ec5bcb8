package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/server/control"
	"github.com/muster-fleet/muster/server/limit"
	"github.com/muster-fleet/muster/server/replica"
)

func (a *app) newServer() *cobra.Command {
	var (
		configFile, data, agentsListen, adminListen, debugListen string
		example                                                  bool
	)
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run the server: agents on 8220, admin API and web UI on 8221",
		Long: `Runs the check-in server, the admin API and the web UI in one process, with all
it keeps in one folder. At its first start it makes a CA, an admin key and an
enrollment key, and prints what to do next. Ctrl-C stops it: parked agents are
answered, requests under way may finish.

Several servers may run on one Elasticsearch. Before the first start of another one
copy the folders tls and trust of a running server's data folder into its own:
agents pin the CA, so a server with another one does not start.

How many agents, handshakes and requests it takes at once follows from the machine's
processors, memory and limit of open files; the section limits of the configuration
says otherwise. What is beyond them is told to come again later (429), and the admin
API answers meanwhile. Its /api/status and /metrics show the limits and their use.
GOMEMLIMIT is 90 % of the memory, unless the environment sets it. --debug-listen serves profiles:
  go tool pprof http://127.0.0.1:6060/debug/pprof/profile`,
		Example: `  muster server
  muster server --data /srv/muster --config /etc/muster/server.yml
  muster server --example-config > server.yml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if example {
				_, err := io.WriteString(cmd.OutOrStdout(), replica.Example)
				return err
			}
			config, err := loadConfig(configFile, data)
			if err != nil {
				return err
			}
			config.Agents.Listen = firstOf(agentsListen, config.Agents.Listen)
			config.Admin.Listen = firstOf(adminListen, config.Admin.Listen)
			config.Debug.Listen = firstOf(debugListen, config.Debug.Listen)
			return a.serve(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), config)
		},
	}
	f := cmd.Flags()
	f.StringVar(&configFile, "config", "", "configuration file (YAML)")
	f.StringVar(&data, "data", "", "folder of everything the server keeps (default "+replica.Defaults().Data+")")
	f.StringVar(&agentsListen, "agents-listen", "", "address for agents (default :8220)")
	f.StringVar(&adminListen, "admin-listen", "", "address for the admin API and the UI (default :8221)")
	f.StringVar(&debugListen, "debug-listen", "", "loopback address that serves profiles, such as 127.0.0.1:6060 (default none)")
	f.BoolVar(&example, "example-config", false, "print a configuration file with every key explained, and exit")
	return cmd
}

// loadConfig reads the configuration file, if there is one; data is the folder
// that the command line names, or empty.
func loadConfig(file, data string) (replica.Config, error) {
	config := replica.Defaults()
	if file != "" {
		var err error
		if config, err = replica.Load(file); err != nil {
			return config, err
		}
	}
	config.Data = firstOf(data, config.Data)
	return config, nil
}

// started is what a server prints when it runs; -o json prints it on one line.
type started struct {
	replica.Info
	// First start only; shown this once.
	AdminKey      string `json:"admin_key,omitempty"`
	LoginURL      string `json:"login_url,omitempty"`
	EnrollToken   string `json:"enrollment_token,omitempty"`
	EnrollCommand string `json:"enroll_command,omitempty"`
}

func (a *app) serve(ctx context.Context, out, logTo io.Writer, config replica.Config) error {
	if err := config.Validate(); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(logTo, &slog.HandlerOptions{Level: config.Log.Level}))
	memory := config.Limits.MemoryBytes
	if memory == 0 {
		memory = limit.ThisMachine().Memory
	}
	limit.SetMemoryLimit(memory, os.Getenv)
	s, err := openStore(ctx, config)
	if err != nil {
		return err
	}
	defer func() {
		if err := s.Close(); err != nil {
			log.Error("close the store", "error", err)
		}
	}()
	r, err := replica.New(ctx, replica.Options{Config: config, Store: s, Version: a.version, Log: log})
	if err != nil {
		return err
	}
	if config.Store.Elasticsearch == nil {
		stop, err := control.Serve(config.Data, storeCommands{s}, log)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			log.Warn("commands on this machine, such as `muster admin-key`, need the server to be stopped: this system has no control socket")
		case err != nil:
			return err
		default:
			defer stop()
		}
	}
	info := started{Info: r.Info()}
	adminKey, token, first, err := r.FirstKeys(ctx)
	if err != nil {
		return err
	}
	if first {
		info.AdminKey, info.EnrollToken = adminKey.Encode(), token.Encode()
		info.LoginURL = info.AdminURL + "/login#key=" + info.AdminKey
		info.EnrollCommand = enrollCommand(info.AgentURL, info.EnrollToken, info.CAPin, trustFlags(nil, nil))
	}
	if a.output == "json" {
		err = json.NewEncoder(out).Encode(info)
	} else {
		_, err = io.WriteString(out, info.human())
	}
	if err != nil {
		return err
	}
	err = r.Run(ctx)
	log.Info("server stopped")
	return err
}

func enrollCommand(url, token, pin, trust string) string {
	return "muster-agent install --url " + url + " --token " + token + " --ca-pin " + pin + " " + trust
}

// trustFlags say whom a new host trusts: the publishers' root where one is
// published, for then hosts need no other keys.
func trustFlags(root *string, publisherKeys []string) string {
	switch {
	case root != nil:
		return "--trust-root " + *root
	case len(publisherKeys) > 0:
		return "--trust-key " + strings.Join(publisherKeys, " --trust-key ")
	}
	return "--trust-root <digest of the publishers' root>"
}

func (s started) human() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Muster %s is running.\n\n", s.Version)
	fmt.Fprintf(&b, "  Web UI and admin API   %s\n", s.AdminURL)
	fmt.Fprintf(&b, "  Agents connect to      %s\n", s.AgentURL)
	fmt.Fprintf(&b, "  CA pin                 %s\n", s.CAPin)
	fmt.Fprintf(&b, "  Data                   %s\n", s.Data)
	if s.DebugURL != "" {
		fmt.Fprintf(&b, "  Profiles               %s\n", s.DebugURL)
	}
	if s.AdminKey == "" {
		b.WriteString("\nLost the admin key? Make another with `muster admin-key`.\n")
		return b.String()
	}
	fmt.Fprintf(&b, `
First start. The admin key is shown this once:

  %s

Log in to the web UI (your browser will ask about the new CA once):
  %s
Log in on the command line:
  muster login --url %s --ca-pin %s
Then publish a package with `+"`muster package push`"+`; `+"`muster keys create`"+` prints the command
that installs it on a host and enrols it.
`, s.AdminKey, s.LoginURL, s.AdminURL, s.CAPin)
	return b.String()
}

// offlineFlags say which server is meant.
func offlineFlags(cmd *cobra.Command, configFile, data *string) {
	cmd.Flags().StringVar(configFile, "config", "", "the server's configuration file (YAML)")
	cmd.Flags().StringVar(data, "data", "", "the server's data folder (default "+replica.Defaults().Data+")")
}

func (a *app) newCAPin() *cobra.Command {
	var configFile, data string
	var forget bool
	cmd := &cobra.Command{
		Use:   "ca-pin",
		Short: "Show which CA agents pin, or prepare to change it, on a server's own machine",
		Long: `Shows the pin of the CA that every server of the installation must have. The store
remembers it from the first server's first start, and a server with another CA
does not start: agents would refuse it.

To give the installation another CA, which agents take only when they are enrolled
again: stop all servers, run this with --forget, move the folder tls out of the data
folder of one of them (or change its tls.certificate), start that one, and copy its
new folder tls to the others before they start.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, done, err := localCommands(cmd.Context(), configFile, data)
			if err != nil {
				return err
			}
			defer done()
			pin, err := c.CAPin(cmd.Context(), forget)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), map[string]any{"ca_pin": pin, "forgotten": forget}, func(w io.Writer) {
				switch {
				case pin == "":
					fmt.Fprintln(w, "No server has started on this store yet: the first one chooses its CA.")
				case forget:
					fmt.Fprintf(w, "Forgot %s. The server that starts next chooses the CA.\n", pin)
				default:
					fmt.Fprintln(w, pin)
				}
			})
		},
	}
	offlineFlags(cmd, &configFile, &data)
	cmd.Flags().BoolVar(&forget, "forget", false, "let the server that starts next choose another CA; agents must be enrolled again")
	return cmd
}

func (a *app) newAdminKey() *cobra.Command {
	var configFile, data, name string
	cmd := &cobra.Command{
		Use:   "admin-key",
		Short: "Make an admin key, on the server's own machine",
		Long: `Makes an admin key, whether or not the server runs: if it does, it is asked through
the socket in its data folder, else the key is written to its store. The key is shown
once. Name the server's configuration if it has one: it says where the store is.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, done, err := localCommands(cmd.Context(), configFile, data)
			if err != nil {
				return err
			}
			defer done()
			k, err := c.CreateAdminKey(cmd.Context(), name)
			if err != nil {
				return err
			}
			return a.show(cmd.OutOrStdout(), k, func(w io.Writer) {
				fmt.Fprintln(w, k.APIKey)
			})
		},
	}
	offlineFlags(cmd, &configFile, &data)
	cmd.Flags().StringVar(&name, "name", "made on the server", "name of the key, shown wherever it acts")
	return cmd
}
