#include "engine/base/json_text.h"
#include "inspect/graph/graph.h"
#include "inspect/page/page.h"

namespace overdrive::inspect {

std::string to_html(const Graph& graph, const std::string& title) {
  const std::string json = "{\"title\": " + base::json_quoted(title) + ", \"graph\": " + to_json(graph) + "}";
  return page_of("Overdrive: graph of " + title, kGraphStyle, kGraphScript, json);
}

}  // namespace overdrive::inspect
