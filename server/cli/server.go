package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/agents/enrollment"
	"github.com/muster-fleet/muster/server/agents/limit"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/node/selfupgrade"
)

func (a *client) newServer() *cobra.Command {
	var (
		configFile, data, agentsListen, adminListen, debugListen string
		example, check, newStore                                 bool
	)
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run the server: agents on 8220, admin API and web UI on 8221",
		Long: `Run the check-in server, the admin API and the web UI in one process, with all data in
one folder. The first start creates a CA, an admin key and an enrollment key, and prints
what to do next. Without a terminal, as under systemd, it writes the keys to files in the
data folder, and prints their paths. Ctrl-C stops the server: it answers parked agents and lets requests
under way finish.

Several servers can share one Elasticsearch. Before the first start of another one, copy
the folders tls and trust from the data folder of a running server into its own: agents
pin the CA, so a server with another CA does not start.

The server derives how many agents, handshakes and requests it serves at one time from
the machine's processors, memory and limit of open files; the configuration's section
limits overrides that. It answers requests beyond the limits with status 429 and a time
to retry after, while the admin API stays available. /api/status and /metrics show the
limits and their use; /readyz of the admin API says, without a key, whether the server is
ready. GOMEMLIMIT defaults to 90 % of the memory. --debug-listen serves
profiles:
  go tool pprof http://127.0.0.1:6060/debug/pprof/profile`,
		Example: `  muster server
  muster server --data /srv/muster --config /etc/muster/server.yml
  muster server --example-config > server.yml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if example {
				_, err := io.WriteString(cmd.OutOrStdout(), app.Example)
				return err
			}
			config, err := loadConfig(configFile, data)
			if err != nil {
				return err
			}
			override(&config, "agents.listen", &config.Agents.Listen, agentsListen)
			override(&config, "admin.listen", &config.Admin.Listen, adminListen)
			override(&config, "debug.listen", &config.Debug.Listen, debugListen)
			if check {
				return a.checkConfig(cmd.OutOrStdout(), config)
			}
			return a.serve(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), config, newStore)
		},
	}
	f := cmd.Flags()
	f.StringVar(&configFile, "config", "", "configuration file (YAML)")
	f.StringVar(&data, "data", "", "data folder (default "+app.Defaults().Data+")")
	f.StringVar(&agentsListen, "agents-listen", "", "address for agents (default :8220)")
	f.StringVar(&adminListen, "admin-listen", "", "address for the admin API and the UI (default :8221)")
	f.StringVar(&debugListen, "debug-listen", "", "loopback address that serves profiles, such as 127.0.0.1:6060 (default none)")
	f.BoolVar(&newStore, "new-store", false, "begin a new installation although the data folder has the CA of another")
	f.BoolVar(&check, "check", false, "check whether this version accepts the configuration, print the result, and exit")
	f.BoolVar(&example, "example-config", false, "print a configuration file with every key explained, and exit")
	cmd.AddCommand(a.newServerInstall(), a.newServerVersions(), a.newServerUpgrade(), a.newServerBackups(), a.newServerUnit(), a.newServerSchema())
	return cmd
}

// checkConfig says whether this version accepts a configuration, so that one is not changed to
// that would not start with it.
func (a *client) checkConfig(out io.Writer, config app.Config) error {
	if err := config.Validate(); err != nil {
		return err
	}
	return a.show(out, map[string]string{"version": a.version, "config": config.File}, func(w io.Writer) {
		fmt.Fprintf(w, "Version %s accepts the configuration %s.\n", a.version, cmp.Or(config.File, "without a file"))
	})
}

// loadConfig reads the configuration file, if one is named. data, if not empty, overrides
// its data folder.
func loadConfig(file, data string) (app.Config, error) {
	config := app.Defaults()
	if file != "" {
		var err error
		if config, err = app.Load(file); err != nil {
			return config, err
		}
	}
	override(&config, "data", &config.Data, data)
	return config, nil
}

// noData is the error of a data folder without the server's data.
func noData(folder string, err error) error {
	return fmt.Errorf("there is no server data in %s: name the data folder with --data: %w", folder, err)
}

// validConfig is loadConfig for subcommands that use the whole configuration.
func validConfig(file, data string) (app.Config, error) {
	config, err := loadConfig(file, data)
	if err == nil {
		err = config.Validate()
	}
	return config, err
}

// override sets a key of the configuration to the value of a flag that is given.
func override(config *app.Config, key string, to *string, flag string) {
	if flag != "" {
		*to = flag
		config.Override(key)
	}
}

// started is what a server prints once it runs; with -o json on one line.
type started struct {
	app.Info
	// Set at the first start only. The secrets are printed to a terminal; otherwise they
	// are in files.
	AdminKey        string `json:"admin_key,omitempty"`
	AdminKeyFile    string `json:"admin_key_file,omitempty"`
	LoginURL        string `json:"login_url,omitempty"`
	EnrollToken     string `json:"enrollment_token,omitempty"`
	EnrollTokenFile string `json:"enrollment_token_file,omitempty"`
	EnrollCommand   string `json:"enroll_command,omitempty"`
}

// Files in the data folder with the secrets of the first start, if it does not print them.
const (
	firstKeyFile   = "first-admin-key"
	firstTokenFile = "first-enrollment-token"
)

// setSecrets sets the fields of the first start. Without a terminal it writes the secrets
// to files; see keepSecret.
func (s *started) setSecrets(terminal bool, adminKey, token string) error {
	argument := token
	if terminal {
		s.AdminKey, s.EnrollToken = adminKey, token
		s.LoginURL = s.AdminURL + "/login#key=" + adminKey
	} else {
		s.AdminKeyFile, s.EnrollTokenFile = filepath.Join(s.Data, firstKeyFile), filepath.Join(s.Data, firstTokenFile)
		for file, secret := range map[string]string{s.AdminKeyFile: adminKey, s.EnrollTokenFile: token} {
			if err := disk.WriteFile(disk.OS{}, "first keys", file, []byte(secret+"\n"), 0o600); err != nil {
				return fmt.Errorf("the first keys were created and are lost, since they could not be written: %w: make an admin key with `muster admin-key`", err)
			}
		}
		argument = tokenArgument(nil, s.EnrollTokenFile)
	}
	access := enrollment.Access{AgentURL: s.AgentURL, CAPin: s.CAPin}
	s.EnrollCommand = strings.ReplaceAll(enrollment.WithToken(access.Install()), enrollment.TokenWord, argument)
	return nil
}

func (a *client) serve(ctx context.Context, out, logTo io.Writer, config app.Config, newStore bool) error {
	if err := config.Validate(); err != nil {
		return err
	}
	if err := checkData(config.Data); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(logTo, &slog.HandlerOptions{Level: config.Log.Level}))
	memory := config.Limits.MemoryBytes
	if memory == 0 {
		memory = limit.ThisMachine().Memory
	}
	limit.SetMemoryLimit(memory, os.Getenv)
	for {
		err := a.serveOnce(ctx, out, config, newStore, log)
		switch {
		case errors.Is(err, selfupgrade.ErrStopped) && ctx.Err() == nil:
			continue // held until it may serve
		case errors.Is(err, errReplace) && ctx.Err() == nil:
			return replaceProcess(ctx)
		case err == nil, ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, errReplace) || errors.Is(err, selfupgrade.ErrStopped)):
			log.Info("server stopped")
			return nil
		}
		return err
	}
}

// serveOnce starts a server and runs it until it stops.
func (a *client) serveOnce(ctx context.Context, out io.Writer, config app.Config, newStore bool, log *slog.Logger) error {
	r, err := a.startServer(ctx, out, config, newStore, log)
	if errors.Is(err, errReplace) || ctx.Err() != nil && err != nil {
		return err
	}
	if err != nil {
		freed, rerr := app.ReleaseReserve(disk.OS{}, config.Data)
		if err = errors.Join(err, rerr); !freed {
			return err
		}
		log.Warn("the disk is full: the server starts again with the reserve in its data folder. Withdraw packages, or free some space", "error", err)
		if r, err = a.startServer(ctx, out, config, newStore, log); err != nil {
			return err
		}
	}
	defer r.close()
	hold := func() {
		if err := app.HoldReserve(disk.OS{}, config.Data); err != nil {
			log.Warn("no space is reserved for a start with a full disk", "error", err)
		}
	}
	hold()
	defer hold()
	if a.output == "json" {
		err = json.NewEncoder(out).Encode(r.info)
	} else {
		_, err = io.WriteString(out, r.info.human())
	}
	if err != nil {
		return err
	}
	return r.server.Run(ctx)
}

// runningServer is a server whose listeners are open, and that Run has to be called of.
type runningServer struct {
	server *app.Server
	info   started
	close  func()
}

func (a *client) startServer(ctx context.Context, out io.Writer, config app.Config, newStore bool, log *slog.Logger) (_ *runningServer, err error) {
	if !newStore && config.Store.Elasticsearch == nil && config.TLS.Certificate == "" {
		// Before the store is opened, which would create it.
		err := app.CheckStore(config.Data, func() (bool, error) {
			info, err := os.Stat(filepath.Join(config.Data, storeFile))
			if errors.Is(err, os.ErrNotExist) {
				return true, nil
			}
			return err == nil && info.Size() == 0, err
		})
		if err != nil {
			return nil, err
		}
	}
	machine := &upgradeMachine{version: a.version, config: config, log: log}
	s, stop, err := machine.open(ctx)
	if err != nil {
		return nil, err
	}
	closeAll := func() {
		stop()
		if err := s.Close(); err != nil {
			log.Error("close the store", "error", err)
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	r, err := app.New(ctx, app.Options{Config: config, Store: s, Version: a.version, Log: log, NewStore: newStore, Machine: machine})
	if err != nil {
		return nil, err
	}
	info := started{Info: r.Info()}
	adminKey, token, first, err := r.FirstKeys(ctx)
	if err != nil {
		return nil, err
	}
	if first {
		if err := info.setSecrets(isTerminal(out), adminKey.Encode(), token.Encode()); err != nil {
			return nil, err
		}
	}
	return &runningServer{r, info, closeAll}, nil
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
	if s.AdminKeyFile != "" {
		fmt.Fprintf(&b, `
This is the first start. Standard output is no terminal, so the first keys are in files that
only this user can read. Remove them when you have copied the keys:

  %s      admin key
  %s      enrollment token

Log in on the command line:
  muster login --url %s --ca-pin %s --api-key-file %s
`, s.AdminKeyFile, s.EnrollTokenFile, s.AdminURL, s.CAPin, s.AdminKeyFile)
		return b.String()
	}
	if s.AdminKey == "" {
		b.WriteString("\nIf you lost the admin key, create another with `muster admin-key`.\n")
		return b.String()
	}
	fmt.Fprintf(&b, `
This is the first start. The admin key is shown only once:

  %s

Log in to the web UI (your browser warns about the new CA once):
  %s
Log in on the command line:
  muster login --url %s --ca-pin %s
Then publish a package with `+"`muster package push`"+`, and get the command that installs and
enrols a host with `+"`muster keys create`"+`.
`, s.AdminKey, s.LoginURL, s.AdminURL, s.CAPin)
	return b.String()
}

// serverFiles are the flags that name a server by its files.
type serverFiles struct{ config, data string }

func (s *serverFiles) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.config, "config", "", "the server's configuration file (YAML)")
	cmd.Flags().StringVar(&s.data, "data", "", "the server's data folder (default "+app.Defaults().Data+")")
}

// onServer is running for a subcommand on the machine of a server, which gets the server's configuration.
func onServer[Out any](a *client, cmd *cobra.Command, run func(cmd *cobra.Command, args []string, config app.Config) (Out, error), human func(io.Writer, Out)) *cobra.Command {
	var files serverFiles
	files.flags(cmd)
	return running(a, cmd, func(cmd *cobra.Command, args []string) (out Out, err error) {
		config, err := validConfig(files.config, files.data)
		if err != nil {
			return out, err
		}
		return run(cmd, args, config)
	}, human)
}

func (a *client) newCAPin() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ca-pin",
		Short: "Show the CA that agents pin, or prepare to change it (on the server's machine)",
		Long: `Show the pin of the CA that every server of the installation must have. The store has it
from the first start of the first server. A server with another CA does not start: agents
would refuse it.

To change the CA, after which all agents must be enrolled again: stop all servers, run
this command with --forget, move the folder tls out of the data folder of one server (or
change its tls.certificate), start that server, and copy its new folder tls to the others
before they start.`,
	}
	forget := cmd.Flags().Bool("forget", false, "let the server that starts next set another CA; all agents must be enrolled again")
	return onServer(a, cmd, func(cmd *cobra.Command, _ []string, config app.Config) (out knownCA, err error) {
		c, done, err := localOperations(cmd.Context(), config)
		if err != nil {
			return out, err
		}
		defer done()
		out.Forgotten = *forget
		out.Pin, err = c.CAPin(cmd.Context(), *forget)
		return out, err
	}, func(w io.Writer, out knownCA) {
		switch {
		case out.Pin == "":
			fmt.Fprintln(w, "No server has started on this store yet: the first one sets the CA.")
		case out.Forgotten:
			fmt.Fprintf(w, "Forgot %s. The server that starts next sets the CA.\n", out.Pin)
		default:
			fmt.Fprintln(w, out.Pin)
		}
	})
}

// knownCA is the output of `muster ca-pin`.
type knownCA struct {
	Pin       string `json:"ca_pin"`
	Forgotten bool   `json:"forgotten"`
}

func (a *client) newAdminKey() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "admin-key",
		Short: "Create an admin key (on the server's machine)",
		Long: `Create an admin key and print it, this once; without a terminal, print the path of a
file that has it. If the server runs, the command uses the socket in its data folder,
otherwise it writes to the store. Pass the server's configuration file, if it has one: it
names the store. ` + "`muster admin-keys`" + ` manages admin keys over the network.`,
	}
	name := cmd.Flags().String("name", "", "name of the key, shown with everything it does (default: when it was made)")
	return onServer(a, cmd, func(cmd *cobra.Command, _ []string, config app.Config) (out localKey, err error) {
		c, done, err := localOperations(cmd.Context(), config)
		if err != nil {
			return out, err
		}
		defer done()
		out.File, err = keepSecret(cmd.OutOrStdout(), "admin-key", func() (string, **string, error) {
			// Two usable keys do not share a name.
			k, err := c.CreateAdminKey(cmd.Context(), cmp.Or(*name, "made on the server at "+time.Now().Format(time.DateTime)))
			out.ID, out.Name, out.Key = k.ID, k.Name, &k.APIKey
			return "key " + k.ID, &out.Key, err
		})
		return out, err
	}, func(w io.Writer, out localKey) { fmt.Fprintln(w, shownSecret(out.Key, out.File)) })
}

// localKey is the output of `muster admin-key`.
type localKey struct {
	ID   string  `json:"id"`
	Name string  `json:"name"`
	Key  *string `json:"api_key,omitempty"`
	File string  `json:"api_key_file,omitempty"`
}
