import { defineConfig } from "vitepress";

/** The site of the documentation: these pages and no other source. Everything is served from the site itself. */
export default defineConfig({
  title: "Muster",
  description: "Moves a fleet of hosts to a new version, and back.",
  srcExclude: ["node_modules/**"],
  outDir: "../../build/site",
  cleanUrls: true,
  vue: { template: { transformAssetUrls: { source: ["srcset"], img: ["src"] } } },
  themeConfig: {
    search: { provider: "local" },
    outline: [2, 2],
    nav: [
      { text: "First ten minutes", link: "/start" },
      { text: "Reference", link: "/reference/muster" },
    ],
    sidebar: [
      { text: "Begin", items: [{ text: "The first ten minutes", link: "/start" }, { text: "Concepts", link: "/concepts" }, { text: "Come from another system", link: "/migrate" }] },
      { text: "Use", items: [{ text: "Rollouts", link: "/rollouts" }, { text: "Declared fleets", link: "/fleets" }, { text: "Components", link: "/components" }] },
      {
        text: "Run",
        items: [
          { text: "Operate the server", link: "/operate" },
          { text: "In a container", link: "/container" },
          { text: "Hosts of other kinds", link: "/elsewhere" },
          { text: "Monitor", link: "/monitoring" },
          { text: "Secure", link: "/secure" },
          { text: "Find what is wrong", link: "/troubleshoot" },
        ],
      },
      {
        text: "Reference",
        items: [
          { text: "muster", link: "/reference/muster" },
          { text: "muster-agent", link: "/reference/muster-agent" },
          { text: "Admin API", link: "/reference/api" },
          { text: "Configuration", link: "/reference/configuration" },
          { text: "Errors", link: "/reference/errors" },
          { text: "Metrics", link: "/reference/metrics" },
          { text: "Files of a host", link: "/host" },
          { text: "Architecture", link: "/architecture" },
        ],
      },
    ],
  },
});
