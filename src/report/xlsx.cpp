// SPDX-License-Identifier: Apache-2.0
// Sheets are written row by row into a zip. Texts stand in their cells, so there is no table of
// shared strings; a table with more rows than a sheet takes goes on in the next one.
#include "report/xlsx.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "formats/zip.hpp"
#include "report/markup.hpp"

namespace assay::report {
namespace {

constexpr std::string_view kXmlHead =
    "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\n";
constexpr std::string_view kMain = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
constexpr std::string_view kRelations =
    "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
constexpr std::string_view kPackage = "http://schemas.openxmlformats.org/package/2006";
constexpr size_t kMaxCellBytes = 32767;
constexpr size_t kMaxWidth = 60;
constexpr size_t kRowsForWidth = 200;

// XML 1.0 has no control characters: they become '_'. Cutting may split a character.
//
// text   valid UTF-8
void append_escaped(std::string_view text, std::string* out) {
  std::string cut;
  if (text.size() > kMaxCellBytes) text = cut = repair_utf8(text.substr(0, kMaxCellBytes));
  for (const char c : text) {
    const bool control = static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n';
    append_markup(control ? '_' : c, out);
  }
}

// 0 -> "A", 25 -> "Z", 26 -> "AA".
std::string column_letters(size_t column) {
  std::string letters;
  for (size_t n = column + 1; n > 0; n = (n - 1) / 26) {
    letters.insert(letters.begin(), static_cast<char>('A' + (n - 1) % 26));
  }
  return letters;
}

// ---- how cells look ----

// What a cell is, besides its colour.
enum class Look : uint8_t { Value, Scientific, Link, Title };
constexpr size_t kMarks = 4;  // none, good, doubt, bad
constexpr std::string_view kHeaderStyle = " s=\"1\"";

// Style 0 is plain, 1 the header's; behind them stands each look in each colour.
std::string style_attribute(Look look, Mark mark) {
  if (look == Look::Value && mark == Mark::None) return {};
  const size_t style = 2 + static_cast<size_t>(look) * kMarks + static_cast<size_t>(mark);
  return " s=\"" + std::to_string(style) + "\"";
}

std::string list_xml(const std::string& name, const std::vector<std::string>& items) {
  std::string out = "<" + name + " count=\"" + std::to_string(items.size()) + "\">";
  for (const std::string& item : items) out += item;
  return out + "</" + name + ">";
}

std::string font_xml(const std::string& form, const std::string& size, const std::string& colour) {
  return "<font>" + form + "<sz val=\"" + size + "\"/>" + colour + "<name val=\"Calibri\"/></font>";
}

std::string fill_xml(const std::string& pattern, const std::string& rgb) {
  if (rgb.empty()) return "<fill><patternFill patternType=\"" + pattern + "\"/></fill>";
  return "<fill><patternFill patternType=\"" + pattern + "\"><fgColor rgb=\"" + rgb +
         "\"/></patternFill></fill>";
}

// A style of a cell. Number format 11 is "0.00E+00", 0 the general one.
std::string format_xml(Look look, size_t mark) {
  constexpr int kFonts[] = {0, 0, 2, 3};  // by Look
  const std::string fill = mark == 0 ? "0" : std::to_string(1 + mark);
  const std::string out = "<xf numFmtId=\"" + std::string(look == Look::Scientific ? "11" : "0") +
                          "\" fontId=\"" + std::to_string(kFonts[static_cast<size_t>(look)]) +
                          "\" fillId=\"" + fill +
                          "\" borderId=\"0\" xfId=\"0\" applyNumberFormat=\"1\" applyFont=\"1\" "
                          "applyFill=\"1\"";
  if (look != Look::Title) return out + "/>";
  return out + " applyAlignment=\"1\"><alignment vertical=\"center\" wrapText=\"1\"/></xf>";
}

std::string styles_xml(bool plain) {
  std::vector<std::string> fonts = {font_xml("", "11", ""), font_xml("<b/>", "11", "")};
  // The first two fills are what every spreadsheet expects there.
  std::vector<std::string> fills = {fill_xml("none", ""), fill_xml("gray125", "")};
  std::vector<std::string> formats = {
      "<xf numFmtId=\"0\" fontId=\"0\" fillId=\"0\" borderId=\"0\" xfId=\"0\"/>",
      "<xf numFmtId=\"0\" fontId=\"1\" fillId=\"0\" borderId=\"0\" xfId=\"0\" applyFont=\"1\"/>"};
  if (!plain) {
    fonts.push_back(font_xml("<u/>", "11", "<color rgb=\"FF0563C1\"/>"));
    fonts.push_back(font_xml("<b/>", "13", ""));
    for (const char* rgb : {"FFC6EFCE", "FFFFEB9C", "FFFFC7CE"})
      fills.push_back(fill_xml("solid", rgb));
    for (const Look look : {Look::Value, Look::Scientific, Look::Link, Look::Title}) {
      for (size_t mark = 0; mark < kMarks; ++mark) formats.push_back(format_xml(look, mark));
    }
  }
  return std::string(kXmlHead) + "<styleSheet xmlns=\"" + std::string(kMain) + "\">" +
         list_xml("fonts", fonts) + list_xml("fills", fills) +
         "<borders count=\"1\"><border><left/><right/><top/><bottom/><diagonal/></border></borders>"
         "<cellStyleXfs count=\"1\"><xf numFmtId=\"0\" fontId=\"0\" fillId=\"0\" borderId=\"0\"/>"
         "</cellStyleXfs>" +
         list_xml("cellXfs", formats) +
         "<cellStyles count=\"1\"><cellStyle name=\"Normal\" xfId=\"0\" builtinId=\"0\"/>"
         "</cellStyles></styleSheet>";
}

// ---- sheets ----

// Where the general format would show zeros or take half a screen.
bool is_scientific(double value) {
  const double size = std::abs(value);
  return (size > 0 && size < 1e-3) || (size >= 1e7 && std::isfinite(size));
}

bool is_finite_number(const Cell& cell) {
  return cell.kind == Cell::Kind::Number && std::isfinite(cell.number);
}

// Rows [first, end) of a table, on a sheet of their own.
struct Part {
  size_t table = 0;  // its place in the workbook
  size_t first = 0, end = 0;
  std::string name;
};

bool has_title(const Table& table, const WorkbookOptions& options) {
  return !options.plain && table.title.kind != Cell::Kind::Empty;
}

size_t head_rows(const Table& table, const WorkbookOptions& options) {
  return has_title(table, options) ? 2 : 1;
}

std::vector<Part> parts_of(std::span<const Table> tables, const WorkbookOptions& options) {
  std::vector<Part> parts;
  for (size_t t = 0; t < tables.size(); ++t) {
    const Table& table = tables[t];
    const size_t room = options.max_sheet_rows - head_rows(table, options);
    for (size_t first = 0, number = 1; first == 0 || first < table.rows.size(); ++number) {
      const size_t end = std::min(table.rows.size(), first + room);
      const std::string ending = number == 1 ? "" : " (" + std::to_string(number) + ")";
      parts.push_back({t, first, end, table.name + ending});
      first = std::max<size_t>(end, 1);
    }
  }
  return parts;
}

class Sheet {
 public:
  Sheet(std::span<const Table> tables, const std::vector<Part>& parts, const Part& part,
        const WorkbookOptions& options)
      : tables_(tables),
        parts_(parts),
        part_(part),
        options_(options),
        table_(tables[part.table]),
        head_(head_rows(table_, options)),
        widths_(column_widths()) {
    for (size_t c = 0; c < std::max<size_t>(table_.columns.size(), 1); ++c)
      letters_.push_back(column_letters(c));
    if (options_.plain) return;
    for (const Link& link : table_.links) {
      if (link.row >= part_.first && link.row < part_.end) linked_.emplace(link.row, link.column);
    }
  }

  Status write(const ByteSink& sink) && {
    const std::string last = letters_.back() + std::to_string(part_.end - part_.first + head_);
    out_ = kXmlHead;
    const bool titled = has_title(table_, options_);
    out_ += "<worksheet xmlns=\"" + std::string(kMain) + "\">";
    // A sheet that is read, not only searched, is printed as wide as a page.
    if (titled) out_ += "<sheetPr><pageSetUpPr fitToPage=\"1\"/></sheetPr>";
    out_ += "<dimension ref=\"A1:" + last + "\"/>";
    append_view();
    append_columns();
    out_ += "<sheetData>";
    if (titled) append_title();
    append_header();
    for (size_t r = part_.first; r < part_.end; ++r) {
      append_row(r);
      if (out_.size() < kPieceBytes) continue;
      ASSAY_TRY_STATUS(sink(as_bytes(out_)));
      out_.clear();
    }
    out_ += "</sheetData><autoFilter ref=\"A" + std::to_string(head_) + ":" + last + "\"/>";
    if (titled)
      out_ += "<mergeCells count=\"1\"><mergeCell ref=\"A1:" + letters_[title_end() - 1] +
              "1\"/></mergeCells>";
    append_links();
    if (titled) out_ += "<pageSetup orientation=\"landscape\" fitToHeight=\"0\"/>";
    out_ += "</worksheet>";
    return sink(as_bytes(out_));
  }

 private:
  // Of what is shown of a cell, in characters: a number in the general format is rounded to the
  // room that there is.
  size_t shown_size(const Cell& cell) const {
    const std::string text = cell.csv_text();
    if (options_.plain) return text.size();
    if (is_finite_number(cell))
      return is_scientific(cell.number) ? kScientificWidth : std::min(text.size(), kNumberWidth);
    return static_cast<size_t>(std::ranges::count_if(
        text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
  }

  std::vector<size_t> column_widths() const {
    std::vector<size_t> widths;
    for (const std::string& name : table_.columns) widths.push_back(name.size());
    for (size_t r = part_.first; r < std::min(part_.end, part_.first + kRowsForWidth); ++r) {
      const Cells cells = table_.rows[r];
      for (size_t c = 0; c < cells.size() && c < widths.size(); ++c)
        widths[c] = std::max(widths[c], shown_size(cells[c]));
    }
    for (size_t& width : widths) width = std::min(width + 2, kMaxWidth);
    return widths;
  }

  void append_view() {
    const bool seen_first = !options_.plain && part_.table == options_.opens_on && part_.first == 0;
    const std::string head = std::to_string(head_);
    out_ += "<sheetViews><sheetView" + std::string(seen_first ? " tabSelected=\"1\"" : "") +
            " workbookViewId=\"0\"><pane ySplit=\"" + head + "\" topLeftCell=\"A" +
            std::to_string(head_ + 1) +
            "\" activePane=\"bottomLeft\" state=\"frozen\"/></sheetView></sheetViews>";
  }

  void append_columns() {
    out_ += "<cols>";
    for (size_t c = 0; c < widths_.size(); ++c) {
      const std::string number = std::to_string(c + 1);
      out_ += "<col min=\"" + number + "\" max=\"" + number + "\" width=\"" +
              std::to_string(widths_[c]) + "\" customWidth=\"1\"/>";
    }
    out_ += "</cols>";
  }

  // One past the last column that the title lies over: about a screen.
  size_t title_end() const {
    size_t end = 0;
    for (size_t width = 0; end < widths_.size() && width < kTitleWidth; ++end)
      width += widths_[end];
    return std::max<size_t>(end, 1);
  }

  void append_title() {
    size_t width = 0;
    for (size_t c = 0; c < std::min(title_end(), widths_.size()); ++c) width += widths_[c];
    // Cells that lie together do not grow with their text. Bold letters of 13 points are wider than
    // the plain ones that columns are counted in.
    const size_t lines = 1 + shown_size(table_.title) * 3 / 2 / std::max<size_t>(width, 1);
    out_ += "<row r=\"1\" ht=\"" + std::to_string(std::min<size_t>(6 + 18 * lines, 400)) +
            "\" customHeight=\"1\">";
    append_text("A1", table_.title.csv_text(), style_attribute(Look::Title, table_.title.mark));
    out_ += "</row>";
  }

  void append_header() {
    const std::string number = std::to_string(head_);
    out_ += "<row r=\"" + number + "\">";
    for (size_t c = 0; c < table_.columns.size(); ++c)
      append_text(letters_[c] + number, repair_utf8(table_.columns[c]), kHeaderStyle);
    out_ += "</row>";
  }

  void append_row(size_t r) {
    const std::string number = std::to_string(r - part_.first + head_ + 1);
    out_ += "<row r=\"" + number + "\">";
    const Cells cells = table_.rows[r];
    for (size_t c = 0; c < cells.size(); ++c) {
      if (cells[c].kind == Cell::Kind::Empty) continue;
      const bool is_link = !linked_.empty() && linked_.contains({r, c});
      append_cell(letters_[c] + number, cells[c], is_link ? Look::Link : look_of(cells[c]));
    }
    out_ += "</row>";
  }

  static Look look_of(const Cell& cell) {
    return is_finite_number(cell) && is_scientific(cell.number) ? Look::Scientific : Look::Value;
  }

  void append_cell(const std::string& place, const Cell& cell, Look look) {
    const std::string style = options_.plain ? "" : style_attribute(look, cell.mark);
    if (cell.kind == Cell::Kind::Integer || is_finite_number(cell)) {
      out_ += "<c r=\"" + place + "\"" + style + "><v>" + cell.csv_text() + "</v></c>";
    } else {
      append_text(place, cell.csv_text(), style);
    }
  }

  void append_text(const std::string& place, std::string_view text, std::string_view style) {
    out_ += "<c r=\"" + place + "\" t=\"inlineStr\"" + std::string(style) +
            "><is><t xml:space=\"preserve\">";
    append_escaped(text, &out_);
    out_ += "</t></is></c>";
  }

  void append_links() {
    if (linked_.empty()) return;
    out_ += "<hyperlinks>";
    for (const Link& link : table_.links) {
      if (!linked_.contains({link.row, link.column})) continue;
      out_ += "<hyperlink ref=\"" + letters_[link.column] +
              std::to_string(link.row - part_.first + head_ + 1) + "\" location=\"";
      append_escaped(location_of(link), &out_);
      out_ += "\"/>";
    }
    out_ += "</hyperlinks>";
  }

  // "'api'!A17"
  std::string location_of(const Link& link) const {
    const auto part = std::ranges::find_if(parts_, [&](const Part& one) {
      return one.table == link.table && (!link.target || *link.target < one.end);
    });
    ASSAY_CHECK(part != parts_.end(), "a link leads to a row that there is");
    const size_t head = head_rows(tables_[link.table], options_);
    const size_t row = link.target ? *link.target - part->first + head + 1 : 1;
    std::string location = "'";
    for (const char c : part->name) location += c == '\'' ? "''" : std::string(1, c);
    return location + "'!A" + std::to_string(row);
  }

  static constexpr size_t kScientificWidth = 9;  // "-1.23E-05"
  static constexpr size_t kNumberWidth = 11;
  static constexpr size_t kTitleWidth = 110;
  static constexpr size_t kPieceBytes = size_t{1} << 20;

  std::span<const Table> tables_;
  const std::vector<Part>& parts_;
  const Part& part_;
  const WorkbookOptions& options_;
  const Table& table_;
  size_t head_;
  std::vector<size_t> widths_;
  std::vector<std::string> letters_;
  std::set<std::pair<size_t, size_t>> linked_;  // row, column
  std::string out_;
};

// ---- the other files of the package ----

std::string content_types_xml(size_t sheet_count) {
  const std::string type = "application/vnd.openxmlformats-officedocument.spreadsheetml.";
  std::string out(kXmlHead);
  out += "<Types xmlns=\"" + std::string(kPackage) +
         "/content-types\"><Default Extension=\"rels\" "
         "ContentType=\"application/vnd.openxmlformats-package.relationships+xml\"/>"
         "<Default Extension=\"xml\" ContentType=\"application/xml\"/>"
         "<Override PartName=\"/xl/workbook.xml\" ContentType=\"" +
         type +
         "sheet.main+xml\"/>"
         "<Override PartName=\"/xl/styles.xml\" ContentType=\"" +
         type + "styles+xml\"/>";
  for (size_t i = 1; i <= sheet_count; ++i) {
    out += "<Override PartName=\"/xl/worksheets/sheet" + std::to_string(i) +
           ".xml\" ContentType=\"" + type + "worksheet+xml\"/>";
  }
  return out + "</Types>";
}

std::string package_relations_xml() {
  return std::string(kXmlHead) + "<Relationships xmlns=\"" + std::string(kPackage) +
         "/relationships\"><Relationship Id=\"rId1\" Type=\"" + std::string(kRelations) +
         "/officeDocument\" Target=\"xl/workbook.xml\"/></Relationships>";
}

std::string workbook_relations_xml(size_t sheet_count) {
  std::string out(kXmlHead);
  out += "<Relationships xmlns=\"" + std::string(kPackage) + "/relationships\">";
  for (size_t i = 1; i <= sheet_count; ++i) {
    out += "<Relationship Id=\"rId" + std::to_string(i) + "\" Type=\"" + std::string(kRelations) +
           "/worksheet\" Target=\"worksheets/sheet" + std::to_string(i) + ".xml\"/>";
  }
  out += "<Relationship Id=\"rId" + std::to_string(sheet_count + 1) + "\" Type=\"" +
         std::string(kRelations) + "/styles\" Target=\"styles.xml\"/>";
  return out + "</Relationships>";
}

// The sheets by name, and the one that is open.
std::string workbook_xml(const std::vector<Part>& parts, const WorkbookOptions& options) {
  std::string out(kXmlHead);
  out +=
      "<workbook xmlns=\"" + std::string(kMain) + "\" xmlns:r=\"" + std::string(kRelations) + "\">";
  if (!options.plain) {
    const auto open = std::ranges::find(parts, options.opens_on, &Part::table);
    out += "<bookViews><workbookView activeTab=\"" + std::to_string(open - parts.begin()) +
           "\"/></bookViews>";
  }
  out += "<sheets>";
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string number = std::to_string(i + 1);
    out += "<sheet name=\"";
    append_escaped(parts[i].name, &out);
    out += "\" sheetId=\"" + number + "\" r:id=\"rId" + number + "\"/>";
  }
  return out + "</sheets></workbook>";
}

}  // namespace

Status write_xlsx(std::span<const Table> tables, const WorkbookOptions& options,
                  const ByteSink& sink) {
  formats::ZipWriter zip(sink);
  const auto add = [&](std::string_view name, const std::string& content) {
    return zip.add(name, as_bytes(content), formats::ZipMethod::Deflated);
  };
  const std::vector<Part> parts = parts_of(tables, options);
  for (size_t i = 0; i < parts.size(); ++i) {
    ASSAY_TRY_STATUS(zip.add_deflated("xl/worksheets/sheet" + std::to_string(i + 1) + ".xml",
                                      [&](const ByteSink& entry) {
                                        return Sheet(tables, parts, parts[i], options).write(entry);
                                      }));
  }
  ASSAY_TRY_STATUS(add("[Content_Types].xml", content_types_xml(parts.size())));
  ASSAY_TRY_STATUS(add("_rels/.rels", package_relations_xml()));
  ASSAY_TRY_STATUS(add("xl/workbook.xml", workbook_xml(parts, options)));
  ASSAY_TRY_STATUS(add("xl/_rels/workbook.xml.rels", workbook_relations_xml(parts.size())));
  ASSAY_TRY_STATUS(add("xl/styles.xml", styles_xml(options.plain)));
  return zip.finish();
}

Result<std::string> xlsx_bytes(std::span<const Table> tables, const WorkbookOptions& options) {
  std::string out;
  ASSAY_TRY_STATUS(write_xlsx(tables, options, [&](ByteSpan bytes) -> Status {
    out += as_text(bytes);
    return {};
  }));
  return out;
}

}  // namespace assay::report
