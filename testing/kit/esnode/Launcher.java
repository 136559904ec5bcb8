import java.nio.file.Path;
import java.util.Map;
import java.util.Set;

import org.elasticsearch.common.logging.LogConfigurator;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.env.Environment;
import org.elasticsearch.node.Node;
import org.elasticsearch.plugins.PluginsLoader;

/**
 * Runs one node until its standard input ends, which it does when whoever started it is gone.
 * Arguments: the folder of log4j2.properties, then settings as name=value.
 */
class Launcher {
    public static void main(String[] args) {
        try {
            LogConfigurator.configureESLogging();
            Settings.Builder settings = Settings.builder();
            for (int i = 1; i < args.length; i++) {
                String[] setting = args[i].split("=", 2);
                settings.put(setting[0], setting[1]);
            }
            Environment env = new Environment(settings.build(), Path.of(args[0]));
            LogConfigurator.configure(env, true);
            var modules = PluginsLoader.loadModulesBundles(env.modulesDir());
            Node node = new Node(env, PluginsLoader.createPluginsLoader(modules, Set.of(), Map.of(), true));
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                try {
                    node.close();
                } catch (Exception e) {
                    e.printStackTrace();
                }
            }));
            node.start();
            while (System.in.read() >= 0) {
            }
            System.exit(0);
        } catch (Throwable t) {
            // Threads that were started already would keep the process alive.
            t.printStackTrace();
            // Once more in short: only the end of the log is shown.
            for (Throwable cause = t; cause != null; cause = cause.getCause()) {
                System.err.println((cause == t ? "Failed: " : "because: ") + cause);
            }
            Runtime.getRuntime().halt(1);
        }
    }
}
