using System;
using System.Net.Http;
using System.Threading.Tasks;

/// Asks the gateway for authors with HttpClient: dotnet run, or mcs -r:System.Net.Http.dll Client.cs && mono Client.exe
public static class Client
{
    private const int Attempts = 6;

    public static int Main()
    {
        return Run().GetAwaiter().GetResult();
    }

    private static async Task<int> Run()
    {
        var gateway = Setting("GATEWAY", "http://127.0.0.1:8080");
        var path = "/api/manuscripts/v2/submissions/full/contributors/authors/submissionids";
        var url = gateway + path + "?ids=" + Uri.EscapeDataString("'DEMO-2026-0001'") + "&site_name=demo";
        using (var client = new HttpClient { Timeout = TimeSpan.FromSeconds(120) })
        {
            client.DefaultRequestHeaders.Add("X-Api-Key", Setting("API_KEY", "demo-reporting-key"));
            using (var response = await Get(client, url))
            {
                // The JSON of an error of the gateway has code, detail and requestId. Others are the upstream's own.
                var output = response.IsSuccessStatusCode ? Console.Out : Console.Error;
                output.WriteLine(await response.Content.ReadAsStringAsync());
                return response.IsSuccessStatusCode ? 0 : 1;
            }
        }
    }

    /// Sends the request again after 429 and 503, when Retry-After says so.
    private static async Task<HttpResponseMessage> Get(HttpClient client, string url)
    {
        for (var attempt = 1; ; attempt++)
        {
            var response = await client.GetAsync(url);
            var later = (int)response.StatusCode == 429 || (int)response.StatusCode == 503;
            if (!later || attempt == Attempts) return response;
            var wait = response.Headers.RetryAfter?.Delta ?? TimeSpan.FromSeconds(1);
            response.Dispose();
            await Task.Delay(wait);
        }
    }

    private static string Setting(string name, string otherwise)
    {
        return Environment.GetEnvironmentVariable(name) ?? otherwise;
    }
}
